# Calls on files, one check after the other; says "failed: WHAT" of each that does not hold. Without
# modules, so that the interpreter alone is enough.
#
#   perl calls.pl DIRECTORY
$dir = shift;
chdir $dir or die "failed: chdir $dir: $!\n";
sub ok { my ($what, $holds) = @_; print "failed: $what ($!)\n" unless $holds; $checks++ }
sub make { my ($name, $text) = @_; open(my $f, '>', $name) or return 0; print $f $text; close $f }
sub text { my ($name) = @_; open(my $f, '<', $name) or return undef; local $/; my $t = <$f>; $t }
sub names { my ($name) = @_; opendir(my $d, $name) or return (); my @n = sort grep { !/^\.\.?$/ } readdir $d; @n }
($RDWR, $CREAT, $EXCL, $APPEND) = (2, 0100, 0200, 02000);

# Basic: trees of names, attributes, contents, links.
sub grow {
    my ($at, $depth) = @_;
    for my $n (1 .. 4) { ok("make $at/f$n", make("$at/f$n", "$at/f$n")) }
    return if $depth == 0;
    for my $n (1 .. 3) { ok("mkdir $at/d$n", mkdir "$at/d$n"); grow("$at/d$n", $depth - 1) }
}
sub fell {
    my ($at) = @_;
    for my $n (names($at)) {
        if (-d "$at/$n") { fell("$at/$n") }
        else { ok("text of $at/$n", text("$at/$n") eq "$at/$n"); ok("unlink $at/$n", unlink "$at/$n") }
    }
    ok("rmdir $at", rmdir $at);
}
mkdir 'tree'; grow('tree', 2); fell('tree');
ok('all of it is gone', !-e 'tree');
for my $mode (0, 0400, 0755, 06711, 01777) {
    make('mode', ''); chmod $mode, 'mode';
    ok("mode $mode", ((stat 'mode')[2] & 07777) == $mode); unlink 'mode';
}
make('times', 'x'); utime 1000000, 2000000, 'times';
ok('times', (stat 'times')[8] == 1000000 && (stat 'times')[9] == 2000000);
$big = join '', map { pack 'N', $_ * 2654435761 % 4294967296 } 0 .. 262143;
ok('write a megabyte', make('big', $big)); ok('read a megabyte', text('big') eq $big);
ok('size', -s 'big' == 1048576);
mkdir 'many'; make("many/file.$_", $_) for 0 .. 199; unlink "many/file.$_" for grep { $_ % 3 == 0 } 0 .. 199;
ok('names that are left', join(' ', names('many')) eq join(' ', sort map { "file.$_" } grep { $_ % 3 } 0 .. 199));
for my $n (0 .. 19) {
    make('one', $n); ok('rename', rename 'one', 'two'); ok('link', link 'two', 'one');
    ok('two links', (stat 'one')[3] == 2 && (stat 'one')[1] == (stat 'two')[1]);
    unlink 'one'; ok('one link', (stat 'two')[3] == 1); ok('text', text('two') eq $n);
}
ok('symlink', symlink('two' x 80, 'soft')); ok('readlink', readlink('soft') eq 'two' x 80);
ok('lstat', -l 'soft' && !-e 'soft'); unlink 'soft';

# Special: open files that change or go, exclusive creation, holes, positions in directories.
make('open', 'still here'); open($f, '<', 'open'); unlink 'open'; ok('read an unlinked file', <$f> eq 'still here'); close $f;
open($f, '+>', 'open'); unlink 'open'; syswrite $f, 'new'; sysseek $f, 0, 0; sysread $f, $t, 10; ok('write an unlinked file', $t eq 'new'); close $f;
open($f, '+>', 'shut'); chmod 0, 'shut'; ok('write behind chmod', syswrite($f, 'abc') == 3); sysseek $f, 0, 0; sysread $f, $t, 3; ok('read behind chmod', $t eq 'abc'); close $f; unlink 'shut';
ok('exclusive', sysopen $f, 'excl', $RDWR | $CREAT | $EXCL, 0600); close $f;
ok('exclusive twice', !sysopen($f, 'excl', $RDWR | $CREAT | $EXCL, 0600) && $! == 17); unlink 'excl';
ok('no text behind a negative offset', !defined sysseek(do { open($f, '<', 'big'); $f }, -1, 0)); close $f;
make('a', 'a'); make('b', 'b'); open($f, '<', 'b'); rename 'a', 'b'; sysread $f, $t, 9; ok('read a replaced file', $t eq 'b' && text('b') eq 'a'); close $f; unlink 'b';
open($f, '+>', 'holes'); sysseek $f, 5000000000, 0; syswrite $f, 'end'; sysseek $f, 4999999990, 0; sysread $f, $t, 20; ok('a hole', $t eq ("\0" x 10) . 'end'); ok('its size', -s 'holes' == 5000000003);
truncate $f, 100; ok('cut', -s 'holes' == 100); truncate $f, 300; sysseek $f, 0, 0; ok('grown', sysread($f, $t, 999) == 300 && $t eq "\0" x 300); close $f; unlink 'holes';
opendir $d, 'many'; %at = (); while (1) { my $p = telldir $d; my $n = readdir $d; last unless defined $n; $at{$n} = $p }
for my $n (keys %at) { seekdir $d, $at{$n}; ok("seekdir to $n", readdir($d) eq $n) } rewinddir $d; ok('rewinddir', scalar(() = readdir $d) == keys %at); closedir $d;
ok('a full directory', !rmdir 'many'); ok('into itself', !rename('many', 'many/x')); ok('over a full one', mkdir('empty') && !rename('empty', 'many'));
ok('a long name', make('n' x 255, 'x') && text('n' x 255) eq 'x' && !make('n' x 256, 'x')); ok('odd bytes', make("\xff\n \\", 'y') && (grep { $_ eq "\xff\n \\" } names('.')) == 1);
# Locks of this client's own (nolock): struct flock is type, whence, start, length, pid.
sub lock { my ($f, $how, $type, $start, $len) = @_; fcntl($f, $how, pack 's s x4 q q l x4', $type, 0, $start, $len, 0) }
($GET, $SET, $WAIT, $READ, $WRITE, $NONE) = (5, 6, 7, 0, 1, 2);
sub other { my $pid = fork; if (!$pid) { open(my $g, '+<', 'lock') or exit 9; exit(shift->($g) ? 0 : 1) } waitpid $pid, 0; $? == 0 }
make('lock', 'x' x 1000); open($f, '+<', 'lock');
ok('lock a part', lock($f, $SET, $WRITE, 100, 100));
ok('the same part is refused', other(sub { !lock($_[0], $SET, $READ, 150, 10) }));
ok('the owner of a lock', other(sub { my $l = pack 's s x4 q q l x4', $WRITE, 0, 0, 0, 0; fcntl($_[0], $GET, $l); (unpack 's s x4 q q l', $l)[4] == getppid }));
ok('what is beside it is free', other(sub { lock($_[0], $SET, $WRITE, 0, 100) && lock($_[0], $SET, $WRITE, 200, 0) }));
ok('unlock the middle', lock($f, $SET, $NONE, 140, 20)); ok('the middle is free', other(sub { lock($_[0], $SET, $WRITE, 140, 20) && !lock($_[0], $SET, $WRITE, 139, 1) && !lock($_[0], $SET, $WRITE, 160, 1) }));
ok('for reading', lock($f, $SET, $READ, 0, 0)); ok('others read, too', other(sub { lock($_[0], $SET, $READ, 0, 0) && !lock($_[0], $SET, $WRITE, 0, 1) }));
close $f; ok('a close unlocks', other(sub { lock($_[0], $SET, $WRITE, 0, 0) }));
make('shared', ''); @pids = ();
for my $who (1 .. 3) {
    my $pid = fork; if ($pid) { push @pids, $pid; next }
    for my $n (1 .. 20) { sysopen my $g, 'shared', $RDWR | $APPEND; lock($g, $WAIT, $WRITE, 0, 0); syswrite $g, "$who $n\n"; lock($g, $SET, $NONE, 0, 0); close $g }
    exit 0;
}
waitpid $_, 0 for @pids;
@lines = sort split /\n/, text('shared'); ok('all lines are there', "@lines" eq join(' ', sort map { my $w = $_; map { "$w $_" } 1 .. 20 } 1 .. 3));
print "checks $checks\n";
