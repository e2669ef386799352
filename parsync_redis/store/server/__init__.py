"""Ways to reach a server: connections, primaries, Sentinels, errors, and embedded servers."""
