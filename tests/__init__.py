"""Every process that imports a test records what it touches of SGLang: the list of names is checked against that."""

from tests.support import recorder

recorder.install()  # before anything imports the modules that it records
