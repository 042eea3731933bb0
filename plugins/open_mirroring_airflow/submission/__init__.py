"""How a task starts its job: as a program, on a Spark cluster, or in Fabric's own Spark by Livy."""
