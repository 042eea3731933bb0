"""``python -m workload_generator``."""

from workload_generator.command_line import main

raise SystemExit(main())
