"""Tools for releases: wheels and a local index, checks of a release, the conda recipe. Not part of any package."""
