"""What a scheduler decides, without I/O: its copies of the state, its queue, and the seats that it
chooses.
"""
