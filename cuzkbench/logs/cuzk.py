"""The cuzk daemon's log -> Log."""


def sniff(first, path):
    return False
