"""The simulator: the schedulers' own core in virtual time, over a store in memory."""
