"""A serializer, a sink, a command, an importer and environments, without an algorithm: a tutorial. See README.md."""
