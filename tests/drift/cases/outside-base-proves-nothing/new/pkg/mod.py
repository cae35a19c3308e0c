from outside import Base


class Thing(Base):
    pass
