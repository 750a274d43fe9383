"""Builds the distribution; everything is declared in setup.cfg, but for one look around.

TensorFlow is distributed under several names (tensorflow-cpu, tf-nightly, builds of one's own) that
all install the folder `tensorflow`. A requirement can name but one of them, and pip would install
that over the one that is there. So the requirement is left out where the folder is there and does
not come from the distribution `tensorflow`; whether it is new enough is said when it is used.
"""

import importlib.metadata
import os
import site

import setuptools


def has_another_tensorflow(folders):
    """Tells whether `tensorflow` can be imported and is of another distribution.

    Args:
        folders: where packages are installed.
    """
    found = any(os.path.isfile(os.path.join(f, "tensorflow", "__init__.py")) for f in folders)
    return found and not list(importlib.metadata.distributions(name="tensorflow", path=folders))


class Distribution(setuptools.Distribution):
    """What setup.cfg says, and TensorFlow only where it has to be installed."""

    def parse_config_files(self, *args, **kwargs):
        super().parse_config_files(*args, **kwargs)
        # Not sys.path: pip builds in isolation, where the packages that are there cannot be seen.
        folders = site.getsitepackages()
        if site.ENABLE_USER_SITE:
            folders.append(site.getusersitepackages())
        if has_another_tensorflow(folders):
            kept = [line for line in self.install_requires if not line.startswith("tensorflow")]
            self.install_requires = self.metadata.install_requires = kept


setuptools.setup(distclass=Distribution)
