# fish complete.fish FOLDER LINE: what fish offers at the end of LINE, one a line.
source $argv[1]/cgleaf.fish
complete -C "$argv[2]" | string replace -r '\t.*' ''
# string(1) is unhappy where it had nothing to replace.
true
