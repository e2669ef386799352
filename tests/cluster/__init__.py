"""Tests of the store on a Redis Cluster: real servers, whose slots move and whose primaries die."""
