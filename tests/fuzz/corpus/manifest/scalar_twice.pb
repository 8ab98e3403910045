1.0+abc 8(:
s2rank-00000.bin@H:
s2rank-00000.bin@H