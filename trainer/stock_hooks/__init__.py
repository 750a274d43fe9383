"""Hooks that come with the package; each is a public name of `trainer`."""
