"""What a login may do, on real servers."""
