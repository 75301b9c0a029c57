"""What happens to files and runs when things go wrong: kills, damage, strangers, full disks.

    PYTHONPATH=benchmarks python -m abuse kills --count 100 --power-cuts 20
    PYTHONPATH=benchmarks python -m abuse mutations --count 10000
    PYTHONPATH=benchmarks python -m abuse hostile
    PYTHONPATH=benchmarks python -m abuse full-disk

Each prints a table and its seed, and ends with code 1 if anything failed. Nothing of it looks into
onebasin but where an attacker would: to put a checksum right after an edit.
"""
