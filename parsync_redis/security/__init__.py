"""The logins of a cluster: what each role may do on the Redis server."""
