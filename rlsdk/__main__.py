"""`python -m rlsdk`: the command line."""

from rlsdk.cli.main import main

main()
