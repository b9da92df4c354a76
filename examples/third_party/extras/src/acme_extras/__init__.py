"""A serializer, a metric sink, a command, an importer and environments for rlsdk, without an algorithm: a tutorial. See README.md."""
