"""The JVM in which Spark runs: where Java is, how it starts, what it prints, and how its values and errors are read."""
