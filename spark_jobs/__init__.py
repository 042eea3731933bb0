"""How the pipeline is computed: one module per Spark job, each with ``main(argv)``; formats under ``sources``."""
