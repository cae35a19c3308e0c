def other(:
