"""A Redis Cluster: real servers, whose slots move and whose primaries die."""
