/*
 * The memory map of the game: fixed addresses, so that an environment can read the game without a symbol file.
 * docs/gameboy.md and the game file homebrew.yaml repeat it; a test compares them.
 *
 * Positions are in pixels of the playfield (160 x 128, below the status line) and name the top left corner of a
 * picture of 16 x 16. Cells are 16 x 16; a screen has 10 x 8 of them.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include "hardware.h"

#define BYTE_AT(address) (*(u8 *)(address))
#define WORD_AT(address) (*(u16 *)(address))
#define BYTES_AT(address) ((u8 *)(address))

/* C000-C09F: what is copied to the sprite memory of the console in every frame */
#define sprite_table BYTES_AT(0xC000)

/* the game */
#define mode BYTE_AT(0xC100)          /* 0 title, 1 play, 2 the player died, 3 the lamp is lit */
#define ready BYTE_AT(0xC101)         /* 1 as soon as the player can act */
#define rng_seed WORD_AT(0xC102)      /* written from outside before the start; 0 means: from the time at the title */
#define start_request BYTE_AT(0xC104) /* written from outside: 1 starts the game as the start button does */
#define frame_count WORD_AT(0xC106)   /* frames of play since the start */

/* the player */
#define screen_x BYTE_AT(0xC108)
#define screen_y BYTE_AT(0xC109)
#define player_x BYTE_AT(0xC10A)     /* 0 to 144 */
#define player_y BYTE_AT(0xC10B)     /* 0 to 112 */
#define facing BYTE_AT(0xC10C)       /* 0 down, 1 up, 2 left, 3 right */
#define health BYTE_AT(0xC10D)       /* hearts, 0 to 6 */
#define gems BYTE_AT(0xC10E)
#define has_key BYTE_AT(0xC10F)
#define door_open BYTE_AT(0xC110)
#define goal_reached BYTE_AT(0xC111)
#define dead BYTE_AT(0xC112)
#define enemies_beaten BYTE_AT(0xC113)
#define bushes_cut BYTE_AT(0xC114)
#define screens_visited BYTE_AT(0xC115)
#define visited WORD_AT(0xC116)      /* one bit per screen, bit 4 * y + x */
#define sword_frames BYTE_AT(0xC118) /* frames that the sword stays out */
#define safe_frames BYTE_AT(0xC119)  /* frames in which nothing hurts */

/* the compass in the status line: the screen of the key, then of the door, then of the lamp */
#define target_screen_x BYTE_AT(0xC11A)
#define target_screen_y BYTE_AT(0xC11B)
#define target_x BYTE_AT(0xC11C)     /* where on that screen */
#define target_y BYTE_AT(0xC11D)
#define screens_left BYTE_AT(0xC11E) /* screens still to cross on the shortest way over the key to the lamp */
#define steps_left BYTE_AT(0xC11F)   /* cells still to walk on that way; the status line shows it */

/* what is on this screen */
#define HEARTS 6
#define ENEMIES 2
#define enemy_kind BYTES_AT(0xC120)  /* 0 none, 1 slime, 2 beetle */
#define enemy_x BYTES_AT(0xC123)
#define enemy_y BYTES_AT(0xC126)
#define enemy_way BYTES_AT(0xC129)   /* as `facing` */
#define PICKUPS 3
#define pickup_kind BYTES_AT(0xC130) /* 0 none, 1 gem, 2 heart, 3 key; the key is always the last of the three */
#define pickup_x BYTES_AT(0xC133)
#define pickup_y BYTES_AT(0xC136)

#define ahead BYTE_AT(0xC13A)        /* the kind of the cell that the player faces; FFh beyond the screen */

/* the rest of the world */
#define rng_state WORD_AT(0xC140)
#define key_place BYTE_AT(0xC142)     /* which of its places the key has in this game */
#define entry_x BYTE_AT(0xC143)       /* where the player came in, and comes back to after a fall */
#define entry_y BYTE_AT(0xC144)
#define enemies_left BYTES_AT(0xC150) /* 16: per screen */
#define treasures BYTES_AT(0xC160)    /* 2 x 16: cell of a pickup, 80h added for a heart, FFh for none */

/* the cells of this screen, 8 rows of 10: 0 grass, 1 path, 2 pit, 3 opened door (free up to here),
 * 4 rock, 5 tree, 6 water, 7 bush, 8 locked door, 9 lamp, 10 lit lamp */
#define cells BYTES_AT(0xC200)

#endif
