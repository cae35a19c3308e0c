"""The only room that starts git or touches an object store."""
