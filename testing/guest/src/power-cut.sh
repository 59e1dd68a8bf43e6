#!/bin/sh
# Cuts the power: a byte at a port of QEMU's device isa-debug-exit ends QEMU within this
# instruction, so no other process of the guest does anything more.
#
# Setting the serial port waits until all that the script has printed has left it.
stty raw -echo </dev/ttyS1
printf '\052' | dd of=/dev/port bs=1 seek=244 conv=notrunc 2>/dev/null
printf '\001failed to cut the power\n' >/dev/ttyS1
