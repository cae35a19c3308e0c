def count_ranks():
    return decode() * prefill()
