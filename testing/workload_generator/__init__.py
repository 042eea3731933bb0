"""A stand-in for a SQL Server database whose changes are streamed (CES) or replicated by a Qlik task.

It imports nothing of the product, and the product imports nothing of it. So it independently records what the database
holds and what is sent.

* :mod:`~workload_generator.history` - tables and seeded random transactions; the reference fold.
* :mod:`~workload_generator.ces` - changes as CES messages; :mod:`~workload_generator.delivery` - their delivery to the
  hub.
* :mod:`~workload_generator.transports` - Event Hubs Capture files and JSON lines.
* :mod:`~workload_generator.qlik_change_tables` - changes as a Qlik task stores them;
  :mod:`~workload_generator.qlik_file_target` - as files.
* :mod:`~workload_generator.shipping` - how a source's changes are sent, one strategy per format.
* :mod:`~workload_generator.source` - a source database in a SQLite file (``python -m workload_generator``).
"""
