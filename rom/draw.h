/* Everything that is seen: tiles, the status line, words, sprites. */
#ifndef DRAW_H
#define DRAW_H

#include "memory.h"

void set_up_pictures(void);
void wait_frame(void);
u8 read_buttons(void);

void begin_drawing(void);
void end_drawing(void);
void draw_screen(void);
void draw_title(void);
void draw_words(const char *words, u8 column, u8 row);

void show_changes(void);
void cell_changed(u8 cell);
void status_changed(void);
void place_sprites(void);
void set_out_sprites(void);

#endif
