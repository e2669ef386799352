"""Each script does what its header says, on fakeredis and on real servers."""
