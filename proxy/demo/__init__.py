"""Show the proxy's main job on a real model server, with no setup beyond `pip install '.[demo]'`."""
