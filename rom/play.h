/* The rules of the game. */
#ifndef PLAY_H
#define PLAY_H

#include "memory.h"

#define MODE_TITLE 0
#define MODE_PLAY 1
#define MODE_DEAD 2
#define MODE_WON 3

u8 random_byte(void);
u8 random_below(u8 limit);

void new_game(void);
void play_frame(void);

/* in world.c */
void scatter_world(void);
void enter_screen(void);
void set_compass(void);
void count_steps(void);

#endif
