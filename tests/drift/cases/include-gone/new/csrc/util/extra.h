int extra();
