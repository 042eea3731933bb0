"""Ten exercises for any program that writes into a landing zone of Fabric's open mirroring.

Read :mod:`~landing_zone_acceptance.writer` to plug in a writer, and :mod:`~landing_zone_acceptance.exercises` to see
what it has to do. The suite imports the emulator and nothing of any writer.
"""
