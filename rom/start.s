; Where the console begins, and the only interrupt: one per picture, which ends the wait of `wait_frame`.

	.module start
	.globl _main

	.area	_HEADER (ABS)
	.org	0x40
	reti

	.org	0x100
	nop
	jp	begin

	.org	0x150
begin:
	di
	ld	sp, #0xE000
	xor	a
	ld	hl, #0xC000
clear:				; all memory of the game begins as zeros, whatever was there
	ld	(hl+), a
	bit	5, h
	jr	z, clear
	call	start_of_globals
	jp	_main

	.area	_HOME
	.area	_CODE
	.area	_INITIALIZER
	.area	_GSINIT
	.area	_GSFINAL
	.area	_DATA
	.area	_INITIALIZED
	.area	_BSS

	.area	_GSINIT
start_of_globals:
	.area	_GSFINAL
	ret
