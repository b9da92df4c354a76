"""The command line: `rlsdk`. There is one file per command. Slow imports happen only when a command needs them."""
