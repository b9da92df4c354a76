"""The cross-entropy method for rlsdk: a tutorial. See README.md."""
