"""Results of tests and benchmarks, put together as a report that names its sources."""
