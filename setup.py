"""Builds the distribution; everything is declared in setup.cfg."""

import setuptools

setuptools.setup()
