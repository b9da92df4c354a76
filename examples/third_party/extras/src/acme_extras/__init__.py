"""A serializer, a metric sink and environments for rlsdk, without an algorithm: a tutorial. See README.md."""
