def a(config):
    return config.kinds.count("hash") + 1
