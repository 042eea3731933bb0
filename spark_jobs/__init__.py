"""The Spark jobs of the pipeline: one module per job, each with ``main(argv)``; ``sources`` has the source formats."""
