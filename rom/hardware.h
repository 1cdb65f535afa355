/* The registers of the console that the game uses. */
#ifndef HARDWARE_H
#define HARDWARE_H

typedef unsigned char u8;
typedef unsigned int u16;

__sfr __at(0xFF00) JOYPAD;
__sfr __at(0xFF40) LCD_CONTROL;
__sfr __at(0xFF42) SCROLL_Y;
__sfr __at(0xFF43) SCROLL_X;
__sfr __at(0xFF44) LCD_LINE;
__sfr __at(0xFF47) BACKGROUND_SHADES;
__sfr __at(0xFF48) SPRITE_SHADES;
__sfr __at(0xFF0F) INTERRUPTS_PENDING;
__sfr __at(0xFFFF) INTERRUPTS_ENABLED;

#define TILE_MEMORY ((u8 *)0x8000)
#define TILE_MAP ((u8 *)0x9800)
#define MAP_WIDTH 32
#define LCD_ON 0x97 /* on, tiles at 8000, map at 9800, sprites of 8 x 16, background */

/* Buttons as `read_buttons` gives them. */
#define RIGHT 0x01
#define LEFT 0x02
#define UP 0x04
#define DOWN 0x08
#define BUTTON_A 0x10
#define BUTTON_START 0x80

#endif
