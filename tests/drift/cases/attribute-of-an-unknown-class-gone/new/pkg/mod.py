def build(config):
    return config.kinds.count("hash")
