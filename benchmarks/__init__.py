"""What can be measured of the proxy with one command each; the tables in `docs/` come from here."""
