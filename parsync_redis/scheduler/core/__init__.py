"""What a scheduler decides, without I/O.

Its copies of the state, its queue, the seats it chooses.
"""
