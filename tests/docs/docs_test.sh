#!/bin/sh
exec python3 -B "$1"
