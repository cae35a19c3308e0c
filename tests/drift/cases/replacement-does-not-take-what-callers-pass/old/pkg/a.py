from pkg.mod import helper

value = helper(1)
