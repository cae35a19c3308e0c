from dataclasses import dataclass


@dataclass
class CacheConfig:
    block: int = 16
    hash_block: int = 16


@dataclass
class Config:
    cache: CacheConfig
