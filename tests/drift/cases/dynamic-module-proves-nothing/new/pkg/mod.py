def __getattr__(name):
    return print
