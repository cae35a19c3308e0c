def build(config):
    return len(config.kinds)
