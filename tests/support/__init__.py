"""Real and scripted upstreams, a server and a client over real sockets, for every test."""
